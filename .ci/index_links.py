"""Let the links of the README and of the project lead to a repository, for a package index: index_links.py URL TAG."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
_RELATIVE = re.compile(r"(!?)\[([^]]*)\]\((?!https?:|#|mailto:)([^)]+)\)")


def absolute(text: str, url: str, tag: str) -> str:
    """Markdown whose relative links lead to the files of a tag, and whose pictures are these files."""

    def link(found: re.Match[str]) -> str:
        is_picture, words, path = found.groups()
        return f"{is_picture}[{words}]({url}/{'raw' if is_picture else 'blob'}/{tag}/{path})"

    return _RELATIVE.sub(link, text)


def with_addresses(text: str, url: str, tag: str) -> str:
    """The settings of the project with the addresses of its source, its changes and its issues."""
    pages = {"Source": url, "Changelog": f"{url}/blob/{tag}/CHANGELOG.md", "Issues": f"{url}/issues"}
    lines = "".join(f'{name} = "{address}"\n' for name, address in pages.items())
    return text.replace("[project.urls]\n", f"[project.urls]\n{lines}", 1)


if __name__ == "__main__":
    for name, change in (("README.md", absolute), ("pyproject.toml", with_addresses)):
        path = ROOT / name
        path.write_text(change(path.read_text(encoding="utf-8"), *sys.argv[1:]), encoding="utf-8")
