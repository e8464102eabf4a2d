package config

import "github.com/spf13/pflag"

// DebugOptions configure what helps to debug the server.
type DebugOptions struct {
	Profiling bool
	// ContentionProfiling enables the block and mutex profiles. Socket is the Unix socket that
	// serves profiles. LogFiles serves /logs.
	ContentionProfiling bool
	Socket              string
	LogFiles            bool
}

func (o *DebugOptions) addFlags(generic, misc *pflag.FlagSet) {
	generic.BoolVar(&o.Profiling, "profiling", true, "Serve profiles at /debug/pprof/.")
	generic.BoolVar(&o.ContentionProfiling, "contention-profiling", false, "Enable block profiling, if --profiling is enabled.")
	generic.StringVar(&o.Socket, "debug-socket-path", "", "Unix socket that serves profiles without authentication. Only the user of the server can connect to it.")
	misc.BoolVar(&o.LogFiles, "enable-logs-handler", false, "Serve the files of /var/log at /logs/.")
}
