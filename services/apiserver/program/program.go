// Package program is the service's door for a binary: its command line, and what it
// runs. The service's own main calls it, and the binary that holds the whole suite.
package program

import (
	"binnacle/libs/options"
	"binnacle/services/apiserver/internal/app"
)

// Command is the service with its defaults. Each call makes another one.
func Command() options.Command {
	o := app.NewOptions()
	return options.Command{Name: app.Name, Short: app.Short, Options: o, Run: o.Run, Commands: []options.Command{app.SnapshotCommand()}}
}
