// Package authnconfig reads the authentication configuration file: which
// issuers of JSON web tokens are trusted, how a user is made of a token's
// claims, and who may stay anonymous (specification: "Authentication
// configuration file").
//
// Parse decodes a file strictly and validates it; every error has its line and
// the path of its field. An Authenticator serves a file: it authenticates
// tokens by the configuration in use, and while Run runs takes up a new one as
// the file changes.
//
//	in use --file changed--> being made --valid--> in use
//	                              |
//	                           invalid
//	                              v
//	              reported; the one before stays in use
//
// A request is served by one configuration from beginning to end. Issuers whose place
// is unchanged keep their keys; where another place is given, those from before count
// until the new ones are known, for swapTimeout at most. So a reload drops nothing, and
// nothing that it takes away waits for anybody.
//
// The token review service and the API server's front end call it.
package authnconfig
