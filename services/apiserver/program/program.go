// Package program is the entry point of the service for its own binary and for the
// binary that holds the whole suite.
package program

import (
	"context"
	"log/slog"

	"binnacle/libs/healthcheck"
	"binnacle/libs/options"
	"binnacle/services/apiserver/internal/build"
	"binnacle/services/apiserver/internal/config"
)

// Command returns the service with default flags.
func Command() options.Command {
	serverOptions := config.NewOptions()
	run := func(ctx context.Context, log *slog.Logger) error { return build.Run(ctx, serverOptions, log) }
	return options.Command{Name: config.Name, Short: config.Short, Options: serverOptions, Run: run, Commands: []options.Command{config.SnapshotCommand(), healthcheck.Command()}}
}

// Snapshot returns the command that saves, inspects and restores snapshots of etcd.
func Snapshot() options.Command { return config.SnapshotCommand() }
