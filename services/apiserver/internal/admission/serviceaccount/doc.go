// Package serviceaccount gives pods the service account that they run as: its
// name, a volume with its token, and its secrets for pulling images. It refuses
// pods whose account does not exist, and, where an account says so, pods that
// use secrets which the account does not list.
package serviceaccount
