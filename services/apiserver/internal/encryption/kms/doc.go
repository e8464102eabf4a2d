// Package kms seals values with keys that a plugin keeps: a process beside the server,
// asked by gRPC at a socket of this machine (k8s.io/kms). It owns the connection, the
// keys that the plugin has opened, what is known of the plugin's health, and the
// metrics of all that. Package encryption makes a Provider for each plugin that its
// configuration names, and closes it when the configuration does no more.
//
// # Version 2
//
// A provider draws a seed, has the plugin encrypt it once, and seals values with keys
// derived from it (ciphers.Derived). Beside each value stand the encrypted seed and the
// id of the plugin's key (object.go).
//
//	none ── Status names a key, Encrypt answers with it ──► current ─┐
//	  ▲                                                       │  ▲   │ Status names it
//	  │ values neither open nor seal                          │  └───┘ again: good for
//	                                    no good word for 3 min│        3 minutes more
//	                                                          ▼
//	                                          expired: opens, seals no more
//
// The plugin is asked for its status each minute, each ten seconds while it is not
// well, and by health checks. Another key id there begins a new seed; what was sealed
// before is stale.
//
// # Version 1
//
// Each value has a key of its own, which the plugin encrypts. It is behind a feature
// gate.
//
// # Limits
//
// A call takes the configured time at most. Those who must not wait (Impatient: the stream
// of changes, which waits for nobody) wait a second for one; it goes on, and
// what it opens is kept. While one fails, or has not opened a key in that time, they are
// refused at once what needs another call; what needs none goes on. One call opens a key for all who want
// it; opened keys are bounded in number, and forgotten when nobody used them for an
// hour. A plugin that refuses a key says nothing of others; those who must not wait ask for
// that one again after five seconds, and so does everybody for one that was answered and has
// opened nothing. An *UnavailableError tells that the same value may open later, a *KeyError
// for which key the plugin was asked.
package kms
