// Package authn authenticates requests: the front end's side of authentication. The methods are
// tried in order (authenticating proxy, client certificate, bearer token, token of a WebSocket,
// anonymous). The first that finds a user decides. An invalid credential is rejected even if
// anonymous requests are allowed.
//
// This package contains the methods that need only the request. Package reviews caches the results
// of token reviews. Package webhook calls a token review service. Package objects looks up the
// objects that tokens are bound to. The server's chain calls Authenticate once for each request.
// The TokenReview kind calls Tokens.
package authn
