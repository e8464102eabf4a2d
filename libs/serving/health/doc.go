// Package health holds the checks of a process and serves them as /healthz, /livez and /readyz with
// the response texts of Kubernetes components.
//
// Checks run in the order of registration, each on some or all endpoints. "ping" is registered
// automatically and runs first. During the grace period after the start, /livez skips its checks,
// so that a slow start is not mistaken for a hang. /healthz and /readyz have no grace period.
//
// The endpoints are public. The length of request data that a response repeats is limited, and
// expensive checks use Shared.
//
// The endpoints withhold the reason of a failure. The endpoint of a single check, /readyz/<check>,
// returns it. The reasons are logged when the set of failing checks changes.
package health
