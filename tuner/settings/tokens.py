"""Bearer tokens in files, which whoever issues them renews in place."""

from pathlib import Path


def authorization(token_file: str | None, *, key: str) -> dict[str, str]:
    """Return the header with the token of a file, or none without a file; to be read anew for each request.

    Args:
        token_file: Path of the file.
        key: What names it in the policy.

    Raises:
        ValueError: The file cannot be read, or holds no token. The message does not show what it holds.
    """
    if token_file is None:
        return {}
    try:
        token = Path(token_file).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise ValueError(f"{token_file} cannot be read, must hold a bearer token; check {key}") from None
    # A token that no header can carry would be repeated by the error message of whatever refuses it.
    if not token.isprintable() or not token or " " in token:
        raise ValueError(f"{token_file} holds no bearer token, must be one word; check {key}")
    return {"Authorization": f"Bearer {token}"}
