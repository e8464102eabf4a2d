// Package bootstraptoken is the tokens that let a new node join (specification:
// "Bootstrap token" and "Methods"): what their secrets say, whether they are
// expired, and whom they speak for.
//
// Parse reads a secret into a Token, the way that every reader of such secrets
// does: the authenticator here, the controller that deletes expired ones and the
// one that signs the cluster's information. Authenticator compares in constant
// time. It does not count wrong tries: a secret has more than 80 bits, which nobody
// guesses, and whoever could use up the tries on an id, which is no secret, would
// keep the node out that the token is for.
package bootstraptoken
