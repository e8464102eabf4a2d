package tlsfiles

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// pollInterval is how often files are read again whatever happens.
	pollInterval = time.Minute
	// settleDelay gives a writer the time to replace all files of a set.
	settleDelay = 50 * time.Millisecond
)

// Watch keeps sources up to date until ctx ends. Its error is ctx's. When the
// operating system cannot report changes, they are found by polling alone.
func Watch(ctx context.Context, log *slog.Logger, sources ...Source) error {
	if len(sources) == 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	var events chan fsnotify.Event
	var failures chan error
	watcher, err := watchFolders(sources)
	if err != nil {
		log.Warn("certificate files are followed by polling only", "error", err, "interval", pollInterval)
	} else {
		defer watcher.Close()
		events, failures = watcher.Events, watcher.Errors
	}
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	settle := time.NewTimer(0) // also catches what changed since loading
	defer settle.Stop()
	pending := true
	r := reloader{log: log, sources: sources, failed: make([]string, len(sources))}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-events:
			if !pending {
				settle.Reset(settleDelay)
				pending = true
			}
		case err := <-failures:
			log.Warn("watching certificate files", "error", err)
		case <-settle.C:
			pending = false
			r.reload()
		case <-poll.C:
			r.reload()
		}
	}
}

// watchFolders watches the folders rather than the files, because files are
// replaced by renaming.
func watchFolders(sources []Source) (*fsnotify.Watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, s := range sources {
		for _, f := range s.Files() {
			dirs = append(dirs, filepath.Dir(f))
		}
	}
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		if err := w.Add(dir); err != nil {
			w.Close()
			return nil, err
		}
	}
	return w, nil
}

type reloader struct {
	log     *slog.Logger
	sources []Source
	failed  []string // last error of each source, so that it is logged once
}

func (r *reloader) reload() {
	for i, s := range r.sources {
		changed, err := s.Reload()
		switch {
		case err != nil && err.Error() != r.failed[i]:
			r.failed[i] = err.Error()
			r.log.Error("certificate files cannot be loaded, keeping the content in use", "files", s.Files(), "error", err)
		case err == nil:
			r.failed[i] = ""
			if changed {
				r.log.Info("certificate files reloaded", "files", s.Files())
			}
		}
	}
}
