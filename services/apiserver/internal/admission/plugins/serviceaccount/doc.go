// Package serviceaccount sets the service account of pods: its name, a volume with its token, and
// its image pull secrets. It rejects pods whose account does not exist. If an account enforces it,
// pods may use only the secrets that the account lists.
package serviceaccount
