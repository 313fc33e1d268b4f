"""Tokens of OAUTHBEARER: who issues them, and when a new one is fetched. One source serves both planes.

`oauth_tokens` keeps the last token and renews it; the other files each know one way to get one: `callback` (the user's
``oauth_cb``), `oidc` (an issuer's token endpoint), `token_file`, `azure`, `aws` and `gcp`. `https` asks an issuer over
HTTP. Reading keys belongs to `kip848_client.config.token_keys`, showing tokens to brokers to `kip848_client.wire.sasl`.
"""
