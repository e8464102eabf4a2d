// Package serviceaccount adds to new pods the name of their service account, a volume with its
// token, and its image pull secrets. It rejects pods whose account does not exist. If an annotation
// of the account demands it, pods may use only the secrets that the account lists.
package serviceaccount
