// Package statuses writes what other packages determine to objects: the statuses of definitions,
// admission policies, APIServices and quotas, and events about webhooks. Its writes have the
// identity of the server and pass admission like the writes of clients.
//
// The package has no state. Package build passes its types and functions to the packages that call
// them.
package statuses
