"""What ordinary programs do with the files they name: one line per family.

`NAMES : OPERANDS ; OPTIONS`, going on in indented lines. Operands are roles in order, and the one
with a `+` or `*` takes what is left between the others: `r+ w` reads all but the last. Roles: `r`
read, `w` write, `d` delete, `m` moved away (read and deleted), `t` text, `b` what a build needs.
Options take a value with a role after `=`, which is `?` where it never stands in the next word;
`-x!r` says that with this option the first operand is no text.
"""

LINES = """
shuf iconv : r* ; -o=w --output=w -n=t -i=t -e=t -f=t -t=t
cat tac nl rev fold expand unexpand pr fmt column col colrm ul zcat bzcat xzcat zstdcat lz4cat lzcat gzcat look tsort : r* ;
    -f=t -t=t -w=t -s=t -c=t -n=t -i=t -e=t
head tail : r* ; -n=t -c=t --lines=t --bytes=t --pid=t -s=t
less more most pg bat batcat view zless zmore xzless : r* ; -n=t -p=t -x=t -j=t
wc md5sum sha1sum sha224sum sha256sum sha384sum sha512sum shasum b2sum b3sum cksum sum md5 sha256 : r* ; -a=t -c=r
sort : r* ; -o=w --output=w -k=t -t=t -T=t -S=t --key=t --field-separator=t --parallel=t
uniq : r w ; -f=t -s=t -w=t
cut paste join comm : r* ; -d=t -f=t -c=t -b=t -t=t -1=t -2=t -o=t -e=t -v=t -j=t
tr seq expr printf echo : t*
yes true false : t* ; -e=t
diff cmp sdiff colordiff vimdiff diff3 dircmp delta icdiff : r* ; -I=t -x=t -U=t -C=t -o=w --label=t -n=t -i=t -w=t
base64 base32 basenc uuencode : r* ; -w=t -i=r -o=w
xxd : r w ; -s=t -l=t -c=t -g=t -n=t
od hexdump hd strings : r* ; -n=t -N=t -A=t -t=t -j=t -s=t -e=t -w=t
file stat readlink realpath basename dirname pathchk ls dir vdir lsd exa eza test [ namei lsattr getfacl getfattr getcap mountpoint
    namei findmnt : t* ; -c=t -f=t -d=t -n=t
du df ncdu dust lsblk blkid lsof fuser : t*
grep egrep fgrep zgrep pgrep rgrep rg ag ack ack-grep sift ugrep xzgrep bzgrep : t r* ; -e=t -f=r -A=t -B=t -C=t -m=t -d=t --include=t
    --exclude=t --exclude-dir=t -g=t -t=t -T=t -M=t --max-depth=t --type=t --glob=t -u=t --color=? -e!r -f!r --files!r --regexp=t
    --regexp!r
jq gojq jaq : t r* ; --arg=tt --argjson=tt --slurpfile=tr --rawfile=tr -f=r --from-file=r -L=t --indent=t -f!r
xmllint xmlstarlet xpath pup htmlq csvcut csvlook csvgrep mlr miller xsv : r* ; --xpath=t --schema=t --output=w -c=t -o=w -d=t
touch : w* ; -d=t -t=t -r=t --date=t --reference=t
mkdir mktemp mkfifo mknod : w* ; -m=t -p=t --mode=t --suffix=t -t=t
tree : t* ; -o=w -L=t -P=t -I=t --filelimit=t
tee sponge : w* ;
fallocate : w* ; -l=t -o=t
ln : r+ w ; -t=w -S=t --target-directory=w --suffix=t
cp gcp : r+ w ; -t=w --target-directory=w -S=t --suffix=t
install ginstall : r+ w ; -t=w --target-directory=w -m=t -o=t -g=t -S=t --mode=t --owner=t --group=t
mv gmv : m+ w ; -t=w --target-directory=w -S=t --suffix=t
rename prename perl-rename : t w* ;
rm grm unlink rmdir srm rimraf del-cli del trash-cli : d* ; --interactive=?
secure-delete sfill : d* ; -n=t -s=t --iterations=t --size=t --random-source=t -l=t -p=t
trash trash-put gio-trash rip : t*
split csplit : r w ; -b=t -l=t -n=t -C=t -a=t -f=w -n=t --bytes=t --lines=t --prefix=w
patch : w r ; -p=t -i=r -d=w -o=w -B=t -F=t
cpio pax : t* ; -F=r -O=w -I=r -H=t -D=t
setfattr : t*
ed ex vi vim nvim nano pico emacs micro joe kak hx jed mcedit view gedit code subl : w* ; -c=t -S=r -u=t -T=t --cmd=t -w=t -W=w
pandoc : r* ; -o=w -f=t -t=t --output=w -V=t --template=r -H=r -A=r -B=r
ffmpeg convert magick sox : t*
sha1deep hashdeep md5deep ssdeep : r*
dos2unix unix2dos : w* ;
envsubst : t*
tput stty reset clear tabs setterm : t*
date cal uptime uname hostname whoami id groups who w users last lastlog finger logname tty arch nproc free vmstat iostat mpstat sar top
    htop btop ps pstree pidof pgrep lscpu lsmem lspci lsusb lsmod modinfo dmesg getconf locale ulimit umask sleep time wait jobs fg bg
    times hash type which whereis whatis apropos man info help tldr command builtin let shift set shopt read mapfile readarray declare
    local typeset readonly return exit break continue pushd popd dirs pwd cd logout true disown trap getopts : t*
pytest tox nox jest mocha vitest eslint prettier black ruff flake8 mypy pylint tsc rustc gcc g++ cc c++ clang clang++ cmake ctest ninja
    meson javac ld ar ranlib nm objdump strip ldd size addr2line gcov lcov gprof valgrind perf shellcheck shfmt hadolint yamllint
    markdownlint golangci-lint staticcheck protoc : b* ; --junitxml=w --junit-xml=w --output-file=w
""".strip()
"""Names that stand here are known: what they do is all that is listed, besides their redirects."""
DOES_NOTHING = frozenset("true false : exit return test [ [[ wait".split())
"""Commands that change nothing, whatever they are given."""
WHOLE = frozenset(
    """cat tac nl rev head tail wc md5sum sha1sum sha256sum sha512sum cksum sort uniq cut paste comm tr seq expr printf echo grep egrep
    fgrep diff cmp base64 touch mkdir rmdir rm cp tee basename dirname pwd cd""".split()
)
"""Commands of which the table says all: they open no file but those that it names, and with the
options that it names and short ones they run no program."""
RUNS = """
sort : --compress-program
rg : --pre|--hostname-bin
ag ack bat : --pager
go : -toolexec|-vettool|-exec
mypy : --python-executable
"""
"""Options whose value is a program that the command runs."""
