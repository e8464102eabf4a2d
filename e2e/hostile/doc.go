// Package hostile tests what one client can do to others. It attacks an API server in its own
// process with one attack after another while a well-behaved probe client reads, writes and checks
// health.
//
// The server must neither panic nor return 500, every request of the probe client must succeed, and
// after all attacks the server's heap must return to its size before them.
//
// The latencies of the probe client and the CPU use of the server are reported, not asserted,
// because they depend on the machine. The probe client is a separate process with real-time
// priority, if the test runs as root, and the attackers run at low priority. The figures then show
// the server's work and not the attackers', which run on other machines in production. Compare them
// with the figures of "busy machine", where the attackers' process is as busy and sends no
// requests. On a machine with other load they mean little, because a server without CPU time is
// slow without any attack.
//
// TestHostileClients attacks what every client can reach. The other tests attack with the rights of
// the administrator of one namespace, which include impersonation of its service accounts. Each
// covers one class of attack: stored values that cannot be served, many names of one principal,
// work before authorization, memory held by waiting requests, values that are short in text and
// expand, lists without a byte limit, servers of the attacker, caches that one namespace clears for
// all, and ordinary requests in a loop. Besides the ordinary probe client, one renews the lease of
// a leader election and one writes as an administrator.
// TestExtensionServerDoesNotExhaustControllers attacks the service controllers instead.
//
// Random choices come from a seed, which every run logs and BINNACLE_HOSTILE_SEED sets. The default
// run is short. BINNACLE_HOSTILE=long makes each attack larger and takes BINNACLE_HOSTILE_TIME (10m
// by default). Mutated conversations take half of that time. BINNACLE_HOSTILE_ONLY selects attacks
// by a regular expression, BINNACLE_HOSTILE_EXHAUSTION=each makes each exhaustion request an attack
// of its own, and BINNACLE_HOSTILE_PROFILES is a folder for one profile of the server per attack.
package hostile
