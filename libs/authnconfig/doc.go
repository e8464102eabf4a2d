// Package authnconfig reads the authentication configuration file, which lists the trusted issuers
// of JSON web tokens, maps claims to users, and configures anonymous requests (specification:
// "Authentication configuration file").
//
// Parse decodes a file strictly and validates it. Every error has the line and the path of the
// field. An Authenticator authenticates tokens by the configuration in use. While Run runs, it
// applies changes of the file:
//
//	in use --file changed--> loading --valid--> in use
//	                              |
//	                           invalid
//	                              v
//	              reported; the previous one stays in use
//
// A request uses one configuration from start to end. An issuer keeps its keys if its URLs and CA
// are unchanged. Otherwise the old keys stay valid until the new ones are known, at most for
// swapTimeout. So a reload rejects no valid token, and a removed issuer is rejected at once.
//
// The token review service and the API server's front end use it.
package authnconfig
