// Package oidctest is an OpenID Connect provider for tests: it serves metadata
// and keys over TLS, rotates its keys, breaks in the ways that providers do, and
// signs tokens. It lives as long as the test.
package oidctest
