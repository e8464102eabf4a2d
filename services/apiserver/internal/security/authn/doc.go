// Package authn authenticates requests in the API server. Package build tries the methods in order:
// authenticating proxy, client certificate, bearer token, bearer token in the Sec-WebSocket-Protocol
// header of a WebSocket handshake, anonymous. The first that finds a user decides. An invalid
// credential is rejected even if anonymous requests are allowed.
//
// This package contains the methods that need only the request. Package tokenreviews caches the
// results of token reviews. Package tokenwebhook calls a token review service. The server's chain
// calls Authenticate once for each request. The TokenReview kind calls Tokens.
package authn
