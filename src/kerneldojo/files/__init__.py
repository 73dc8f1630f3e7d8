"""Files that survive being killed: at any moment, by anything, also by a full disk.

There are two kinds. A file of *lines* grows: a line counts once its line break is on disk (`append_line`, or a
`Journal` where many write at once), and whoever reads leaves out a torn last line (`read_lines`). Any other file is
replaced in one piece: it holds either what it held before or all of what is new (`write_whole`, `replacing`).

What can be made anew is kept where programs keep such things (`cache_folder`).

The one file that is not on disk, standard output, is kept for the program alone (`own_standard_output`).

Every room may keep files, so this one comes first and imports the standard library alone.
"""

from kerneldojo.files.cache import cache_folder
from kerneldojo.files.journal import Journal
from kerneldojo.files.lines import append_line, cut_torn_line, read_lines
from kerneldojo.files.standard_output import own_standard_output
from kerneldojo.files.whole import replacing, sync, write_whole

__all__ = [
    "Journal",
    "append_line",
    "cache_folder",
    "cut_torn_line",
    "own_standard_output",
    "read_lines",
    "replacing",
    "sync",
    "write_whole",
]
