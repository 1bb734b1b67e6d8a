"""The language server: what `check` and `show` say, in an editor, while the text is typed.

`server` speaks the protocol, `folder` keeps one project read, and `diagnostics`, `hover`, `hints` and `actions` turn a look at it into what an editor shows.
Only `server` needs pygls' server; the others need the protocol's types.
"""
