"""The tree against RFC 6962 as it is written there, and checkpoints as text."""

from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given
from hypothesis import strategies as st

from db.canonical import FORMS
from db.models import Base
from db.seals import checkpoints
from db.seals.checkpoints import Checkpoint
from db.seals.merkle import Tree, leaf_hash, nodes_beside, path_of, root_beside, root_by_path


def rfc_root(leaves: list[bytes]) -> bytes:
    """MTH of RFC 6962, section 2.1, as it is defined."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return sha256(b"\0" + leaves[0]).digest()
    half = 1
    while half * 2 < len(leaves):
        half *= 2
    return sha256(b"\1" + rfc_root(leaves[:half]) + rfc_root(leaves[half:])).digest()


@given(st.lists(st.binary(max_size=8), max_size=70), st.integers(0, 70))
def test_the_root_is_that_of_the_rfc_and_a_tree_goes_on_from_its_peaks(
    leaves: list[bytes], stop: int
) -> None:
    tree = Tree()
    for at, leaf in enumerate(leaves):
        if at == stop:
            tree = Tree.restore(tree.size, tree.peaks)
        tree.add(leaf)
    assert (tree.size, tree.root) == (len(leaves), rfc_root(leaves))


@given(st.integers(1, 300), st.data())
def test_a_leaf_and_its_path_lead_to_the_root_and_nothing_else_does(
    size: int, data: st.DataObject
) -> None:
    leaves = [b"%d" % i for i in range(size)]
    index = data.draw(st.integers(0, size - 1))
    path = path_of(index, size, lambda level, i: rfc_root(leaves[i << level : (i + 1) << level]))
    leaf, root = leaf_hash(leaves[index]), rfc_root(leaves)
    assert root_by_path(leaf, index, size, path) == root
    assert len(path) <= size.bit_length()
    assert root_by_path(leaf_hash(b"x"), index, size, path) != root
    for at in range(len(path)):
        assert (
            root_by_path(leaf, index, size, [*path[:at], leaf_hash(path[at]), *path[at + 1 :]])
            != root
        )
    for wrong in ([*path, leaf], path[:-1] if path else [leaf]):
        with pytest.raises(ValueError, match="path is too"):
            root_by_path(leaf, index, size, wrong)
    for asked in (-1, size):
        with pytest.raises(ValueError, match="no such leaf"):
            root_by_path(leaf, asked, size, path)
        with pytest.raises(ValueError, match="no such leaf"):
            path_of(asked, size, lambda level, i: b"")


@given(st.integers(1, 200), st.data())
def test_some_leaves_and_what_lies_beside_them_lead_to_the_root(
    size: int, data: st.DataObject
) -> None:
    leaves = [b"%d" % i for i in range(size)]
    known = sorted(data.draw(st.sets(st.integers(0, size - 1))))
    nodes = list(
        nodes_beside(known, size, lambda level, i: rfc_root(leaves[i << level : (i + 1) << level]))
    )
    hashes = b"".join(leaf_hash(leaves[i]) for i in known)
    assert root_beside(known, hashes, size, iter(nodes)) == rfc_root(leaves)
    if known:
        assert root_beside(known, leaf_hash(b"x") + hashes[32:], size, iter(nodes)) != rfc_root(
            leaves
        )
        with pytest.raises(ValueError, match="no such leaves"):
            root_beside([*known, known[-1]], hashes + hashes[-32:], size, iter(nodes))
    with pytest.raises(ValueError, match="more nodes"):
        root_beside(known, hashes, size, iter([*nodes, bytes(32)]))
    if nodes:
        with pytest.raises(ValueError, match="a node is missing"):
            root_beside(known, hashes, size, iter(nodes[:-1]))


def test_a_known_vector_of_certificate_transparency() -> None:
    tree = Tree()
    for leaf in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    ):
        tree.add(bytes.fromhex(leaf))
    assert tree.root.hex() == "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"


def test_peaks_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match="peaks"):
        Tree.restore(3, bytes(32))


def test_a_checkpoint_is_read_as_it_was_written_and_only_its_key_has_signed_it() -> None:
    key, other = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    made = Checkpoint("sluice/abc", 7, bytes(range(32)), "2026-11-21T12:00:00Z", "0" * 64)
    signed, plain = made.text(key), made.text(None)
    assert checkpoints.parse(signed) == checkpoints.parse(plain) == made
    assert plain.endswith("\n\n")
    assert checkpoints.is_signed_by(signed, key.public_key())
    for text, by in (
        (signed, other),
        (plain, key),
        (signed.replace("\n7\n", "\n8\n"), key),
        (signed[:-6] + "AAAA=\n", key),
    ):
        assert not checkpoints.is_signed_by(text, by.public_key())
    assert len({checkpoints.digest(signed), checkpoints.digest(plain)}) == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a\n1\n\n",
        "a\nx\nAAAA\nt\n" + "0" * 64 + "\n\n",
        "a\n1\n!\nt\n" + "0" * 64 + "\n\n",
        "a\n1\nAAAA\nt\n0\n\n",
    ],
)
def test_what_is_no_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a checkpoint"):
        checkpoints.parse(text)


def test_only_ed25519_keys_in_pem_are_taken() -> None:
    good, other = Ed25519PrivateKey.generate(), generate_private_key(SECP256R1())
    private = [
        k.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        for k in (good, other)
    ]
    public = [
        k.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
        for k in (good, other)
    ]
    assert checkpoints.load_private_key(private[0]).public_key() == checkpoints.load_public_key(
        public[0]
    )
    on_one_line = "".join(private[0].splitlines()[1:-1])
    assert checkpoints.public_pem(checkpoints.load_private_key(on_one_line)) == public[0]
    for load, texts in (
        (checkpoints.load_private_key, (private[1], public[0], "x")),
        (checkpoints.load_public_key, (public[1], "x")),
    ):
        for text in texts:
            with pytest.raises(ValueError, match="it is not"):
                load(text)


def test_a_seal_covers_every_column_of_every_table_of_a_call() -> None:
    for form in FORMS:
        columns = ["call_id", *(name for name, _ in (*form.key, *form.stays, *form.content))]
        assert sorted(columns) == sorted(Base.metadata.tables[form.table].columns.keys())
        assert ["call_id", *(name for name, _ in form.key)] == [
            c.name for c in Base.metadata.tables[form.table].primary_key
        ]
