// Package program exposes the service to binaries: its command line and its run function. The
// service's own main and the binary of the whole suite call it.
package program

import (
	"binnacle/libs/healthcheck"
	"binnacle/libs/options"
	"binnacle/services/tokencleaner/internal/app"
)

// Command returns the command of the service with its default options. Each call returns a new one.
func Command() options.Command {
	opts := app.NewOptions()
	return options.Command{
		Name:     app.Name,
		Short:    app.Short,
		Options:  opts,
		Run:      opts.Run,
		Commands: []options.Command{healthcheck.Command()},
	}
}
