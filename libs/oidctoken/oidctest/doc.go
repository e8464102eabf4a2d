// Package oidctest is an OpenID Connect provider for tests. It serves metadata and keys over TLS,
// rotates keys, simulates failures, and signs tokens. It runs until the test ends.
package oidctest
