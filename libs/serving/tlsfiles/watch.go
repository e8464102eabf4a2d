package tlsfiles

import (
	"context"
	"log/slog"

	"binnacle/libs/filewatch"
)

// Watch reloads sources until ctx ends, and returns the error of ctx. If the operating system
// cannot report changes, files are only polled.
func Watch(ctx context.Context, log *slog.Logger, sources ...Source) error {
	if len(sources) == 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	var files []string
	for _, s := range sources {
		files = append(files, s.Files()...)
	}
	r := reloader{log: log, sources: sources, lastErrors: make([]string, len(sources))}
	return filewatch.Watch(ctx, log, files, func(context.Context) { r.reload() })
}

// reloader reloads files and logs each new error once.
type reloader struct {
	log        *slog.Logger
	sources    []Source
	lastErrors []string // last logged error of each source
}

// reload reloads all sources and logs changes and new errors.
func (r *reloader) reload() {
	for i, source := range r.sources {
		changed, err := source.Reload()
		switch {
		case err != nil && err.Error() != r.lastErrors[i]:
			r.lastErrors[i] = err.Error()
			r.log.Error("failed to reload certificate files; keeping the previous ones", "files", source.Files(), "error", err)
		case err == nil:
			r.lastErrors[i] = ""
			if changed {
				r.log.Info("certificate files reloaded", "files", source.Files())
			}
		}
	}
}
