// Package statuses reports the state of the server's parts in objects: the statuses of definitions,
// admission policies, APIServices and quotas, and events about webhooks. It writes as the server
// itself, through admission and storage like any client.
//
// The package has no state. The parts call it; package build connects them.
package statuses
