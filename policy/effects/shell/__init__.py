"""What a text of shell commands would do, analysed without running it.

`resolving.resolve` takes the text apart and finds the commands that would really run;
`reading.read` turns them into effects.
"""
