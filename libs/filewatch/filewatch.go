// Package filewatch follows a configuration file, so that a service takes up a
// new one without a restart. The file is read again when its folder changes (a
// rename, as well as the symbolic links of mounted volumes), and at least once a
// minute.
//
// It knows contents alone: what a content means, and what is to be done about a
// bad one, is the caller's affair. Packages whose configuration is reloaded call
// it from one of their tasks.
package filewatch

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// pollInterval is how often files are read whatever happens.
	pollInterval = time.Minute
	// settleDelay gives a writer the time to finish, and to replace all files of a set.
	settleDelay = 50 * time.Millisecond
	// maxBytes bounds a file.
	maxBytes = 4 << 20
)

// Read returns the content of a file of bounded size.
func Read(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	if len(data) > maxBytes {
		return nil, fmt.Errorf("%s is larger than %d bytes", file, maxBytes)
	}
	return data, nil
}

// Follow calls changed, from one goroutine, with each content of the file that
// is another than that before, which is known at first; and with an error when
// the file cannot be read, once for each different error. It ends with ctx and
// returns ctx's error. When the operating system cannot report changes, they are
// found by polling alone.
func Follow(ctx context.Context, log *slog.Logger, file string, known []byte, changed func(ctx context.Context, data []byte, err error)) error {
	return FollowUntilTaken(ctx, log, file, known, func(ctx context.Context, data []byte, err error) bool {
		changed(ctx, data, err)
		return true
	})
}

// FollowUntilTaken is Follow for who may not be able to take a content yet: as long as
// that is told, it is called with it again, whenever the file's folder changes and at
// least once a minute.
func FollowUntilTaken(ctx context.Context, log *slog.Logger, file string, known []byte, changed func(ctx context.Context, data []byte, err error) (taken bool)) error {
	r := reader{file: file, known: known, taken: true, changed: changed}
	return Look(ctx, log, []string{file}, r.read)
}

// Look calls look, from one goroutine, at first and whenever files may have changed,
// and at least once a minute. It ends with ctx and returns ctx's error.
func Look(ctx context.Context, log *slog.Logger, files []string, look func(context.Context)) error {
	var events chan fsnotify.Event
	var failures chan error
	watcher, err := watchFolders(files)
	if err != nil {
		log.Warn("files are followed by polling only", "files", files, "interval", pollInterval, "error", err)
	} else {
		defer watcher.Close()
		events, failures = watcher.Events, watcher.Errors
	}
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	settle := time.NewTimer(0) // also catches what changed since they were read
	defer settle.Stop()
	pending := true
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
			log.Warn("watching files", "files", files, "error", err)
		case <-settle.C:
			pending = false
			look(ctx)
		case <-poll.C:
			look(ctx)
		}
	}
}

// watchFolders watches the folders rather than the files, because files are
// replaced by renaming.
func watchFolders(files []string) (*fsnotify.Watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, f := range files {
		dirs = append(dirs, filepath.Dir(f))
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

type reader struct {
	file    string
	known   []byte
	taken   bool   // what is known
	failed  string // the last error, so that it is told once
	changed func(context.Context, []byte, error) bool
}

func (r *reader) read(ctx context.Context) {
	data, err := Read(r.file)
	switch {
	case err != nil && err.Error() != r.failed:
		r.failed = err.Error()
		r.changed(ctx, nil, err)
	case err == nil:
		r.failed = ""
		if !r.taken || !bytes.Equal(data, r.known) {
			r.known = data
			r.taken = r.changed(ctx, data, nil)
		}
	}
}
