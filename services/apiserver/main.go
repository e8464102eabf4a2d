// Command apiserver is the process around package app.
package main

import (
	"binnacle/libs/options"
	"binnacle/services/apiserver/internal/app"
)

func main() {
	o := app.NewOptions()
	options.Run(app.Name, app.Short, o, o.Run, app.SnapshotCommand())
}
