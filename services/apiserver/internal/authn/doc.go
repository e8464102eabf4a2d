// Package authn finds out who asks: the front end's side of authentication. The
// methods are tried in order (authenticating proxy, client certificate, bearer
// token, token of a WebSocket, anonymous); the first that knows the user decides.
// A credential that is given and wrong is refused even where anonymous requests
// are allowed.
//
// The methods that need no more than the request are here. Package reviews keeps
// what tokens were found to be worth, package webhook asks a token review
// service, package objects looks up what tokens are bound to. The server's chain
// calls Authenticate once for each request; the TokenReview kind calls Tokens.
package authn
