// Package program is the entry point of the service for its own binary and for the
// binary that holds the whole suite.
package program

import (
	"context"
	"log/slog"

	"binnacle/libs/options"
	"binnacle/services/apiserver/internal/build"
)

// Command returns the service with default flags.
func Command() options.Command {
	o := build.NewOptions()
	run := func(ctx context.Context, log *slog.Logger) error { return build.Run(ctx, o, log) }
	return options.Command{Name: build.Name, Short: build.Short, Options: o, Run: run, Commands: []options.Command{build.SnapshotCommand()}}
}

// Snapshot returns the command that saves, inspects and restores snapshots of etcd.
func Snapshot() options.Command { return build.SnapshotCommand() }
