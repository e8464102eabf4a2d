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
//	in use --file changed--> being made --valid--> waiting --> in use
//	                              |                (at most swapTimeout, for
//	                           invalid              issuers that are new)
//	                              v
//	              reported; the one before stays in use
//
// A request is served by one configuration from beginning to end, and issuers
// whose place is unchanged keep their keys, so that a reload drops nothing.
//
// The token review service and the API server's front end call it.
package authnconfig
