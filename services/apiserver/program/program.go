// Package program is the entry point of the service for its own binary and for the
// binary that holds the whole suite.
package program

import (
	"binnacle/libs/options"
	"binnacle/services/apiserver/internal/build"
)

// Command returns the service with default flags.
func Command() options.Command {
	o := build.NewOptions()
	return options.Command{Name: build.Name, Short: build.Short, Options: o, Run: o.Run, Commands: []options.Command{build.SnapshotCommand()}}
}

// Snapshot returns the command that saves, inspects and restores snapshots of etcd.
func Snapshot() options.Command { return build.SnapshotCommand() }
