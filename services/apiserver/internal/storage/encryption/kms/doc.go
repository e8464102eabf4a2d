// Package kms encrypts values with keys of a plugin: a process beside the server, called by gRPC at
// a local socket (k8s.io/kms). It owns the connection, the decrypted keys, the health state of the
// plugin, and their metrics. Package encryption creates a Provider for each plugin in its
// configuration, and closes it when the configuration no longer contains the plugin.
//
// # Version 2
//
// A provider generates a random seed, has the plugin encrypt it once, and encrypts values with keys
// derived from it (ciphers.Derived). Each value is stored together with the encrypted seed and the
// ID of the plugin's key (object.go).
//
//	none ── Status names a key, Encrypt answers with it ──► current ─┐
//	  ▲                                                       │  ▲   │ Status names it
//	  │ values neither decrypt nor encrypt                    │  └───┘ again: valid for
//	                              no healthy status for 3 min │        3 minutes more
//	                                                          ▼
//	                                          expired: decrypts, no longer encrypts
//
// The provider reads the status of the plugin each minute, each ten seconds while it is unhealthy,
// and for health checks. A new key ID starts a new seed and makes earlier values stale.
//
// # Version 1
//
// Each value has its own key, which the plugin encrypts. This version requires a feature gate.
//
// # Limits
//
// A call takes at most the configured time. Impatient callers, marked by FailFast, wait one second for it. The
// stream of changes is impatient because it must not block. The call continues, and its result is
// kept. While a
// call fails, or has not decrypted a key in that time, requests of impatient callers that need
// another call are rejected immediately. Requests that need no call continue. One call decrypts a
// key for all callers. Decrypted keys are bounded in number, and dropped after an hour without use.
//
// A rejected key does not affect other keys. Impatient callers retry it after five seconds. All
// callers retry a key that was returned but has decrypted nothing after the same time. An
// *UnavailableError means that the same value may be readable later. A *KeyError contains the key
// that the plugin was asked for.
package kms
