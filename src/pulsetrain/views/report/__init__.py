"""The report of a run: as text, Markdown, one HTML file, and the files of the older benchmark tool."""

from pulsetrain.views.report.files import write_files, write_html
from pulsetrain.views.report.markdown import report_markdown
from pulsetrain.views.report.text import report_lines

__all__ = ["report_lines", "report_markdown", "write_files", "write_html"]
