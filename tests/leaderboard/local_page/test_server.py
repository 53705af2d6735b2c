"""`leaderboard serve` answers what asks for it by its own name, within the folder of the page."""

import socket

import pytest
from clirun import refuses

from stsbench.errors import StsbenchError
from stsbench.leaderboard import serve
from stsbench.leaderboard.local_page.server import Server, built_page

OWN = "Host: 127.0.0.1:PORT"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    place = tmp_path_factory.mktemp("served")
    site = place / "site"
    (site / "tabs").mkdir(parents=True)
    (site / "index.html").write_text("the board")
    (place / "secret.txt").write_text("a secret")
    (site / "link.txt").symlink_to(place / "secret.txt")
    (site / "circle").symlink_to(site / "circle")
    with Server(site, 0).start() as server:
        yield server


def asked(server, path, *headers, method="GET"):
    """The answer to a request; PORT in a header is the server's."""
    port = server.url.rstrip("/").rpartition(":")[2]
    with socket.create_connection(("127.0.0.1", int(port))) as connection:
        lines = [f"{method} {path} HTTP/1.0", *(header.replace("PORT", port) for header in headers)]
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        connection.settimeout(10)
        answer = b""
        while part := connection.recv(65536):
            answer += part
    return int(answer.split()[1]), answer.decode()


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_only_who_asks_by_its_own_name_is_answered(served, method):
    for headers, status in (
        ([OWN], 200), (["Host: LocalHost:PORT"], 200), (["host: [::1]:PORT"], 200),
        ([], 421), (["Host: evil.example"], 421), (["Host: evil.example:PORT"], 421), (["Host: 127.0.0.1"], 421),
        (["Host: 127.0.0.1:1"], 421), (["Host: 127.0.0.1.evil.example:PORT"], 421), (["Host:"], 421),
        ([OWN, "Host: evil.example"], 421), (["Host: evil.example@127.0.0.1:PORT"], 421),
        ([OWN, "Origin: http://127.0.0.1:PORT"], 200), ([OWN, "Origin: http://evil.example"], 403),
        ([OWN, "Origin: null"], 403),
        ([OWN, "Sec-Fetch-Site: same-origin"], 200), ([OWN, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"], 403),
        ([OWN, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"], 200)):
        given, answer = asked(served, "/", *headers, method=method)
        assert given == status and ("the board" in answer) == (status == 200 and method == "GET"), headers


def test_a_path_that_names_no_file_of_the_page_is_not_found(served, capfd):
    for path in (
        "/%00", "/index.html%00", "/..%2fsecret.txt", "/%2e%2e/secret.txt", "/../secret.txt", "/link.txt", "/circle",
        "/%ed%a0%80", "/" + "a" * 5000, "/tabs/..%5c..%5csecret.txt", "/nothing", "*", "http://evil.example/none"):
        status, answer = asked(served, path, OWN)
        assert status == 404 and "secret" not in answer.replace(path, ""), path
    # Other requests are errors, and a folder is asked for with its slash, at this address.
    for headers, method in (([OWN, "X: " + "a" * 70_000], "GET"), ([OWN] + [f"X{i}: 1" for i in range(200)], "GET"),
                            ([OWN], "POST"), ([OWN], "TRACE")):
        assert asked(served, "/", *headers, method=method)[0] >= 400
    for path, location in (("/tabs", "/tabs/"), ("//evil.example/..%2f", "/evil.example/..%2f/")):
        status, answer = asked(served, path, OWN)
        assert status == 301 and f"Location: {location}\r\n" in answer
    assert capfd.readouterr().err == ""


def test_a_server_ends_with_its_block(tmp_path):
    built, board = tmp_path / "built", tmp_path / "board"
    built.mkdir()
    (built / "index.html").write_text("the board")
    with serve(built, port=0) as server:
        assert asked(server, "/", OWN)[0] == 200
        assert server.url in server._repr_html_() and server.url in repr(server)
    with pytest.raises(ConnectionRefusedError):
        asked(server, "/", OWN)
    # A built folder is served as well as the board that holds one.
    (board / "measured").mkdir(parents=True)
    assert built_page(built) == built and built_page(board) == board / "site"
    refuses(StsbenchError, "is not a board", built_page, tmp_path)
