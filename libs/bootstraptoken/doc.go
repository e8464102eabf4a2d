// Package bootstraptoken implements the tokens with which a new node joins (specification:
// "Bootstrap token" and "Methods"): the content of their secrets, their expiry, and their users.
//
// Parse converts a secret to a Token for all readers of such secrets: the authenticator here, the
// controller that deletes expired ones, and the controller that signs cluster-info. Authenticator
// compares in constant time. It does not limit attempts. A secret has more than 80 bits, so it
// cannot be guessed. Token ids are not secret, so a client that used up the attempts for an id
// would lock out the node with that token.
package bootstraptoken
