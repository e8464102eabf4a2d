// Package filewatch follows a configuration file, so that a service takes up a
// new one without a restart. The file is read again when its folder changes (a
// rename, as well as the symbolic links of mounted volumes) or is replaced, and at least
// once a minute.
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
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// pollInterval is how often files are read whatever happens.
	pollInterval = time.Minute
	// awayInterval is how often it is looked for a folder that is not there.
	awayInterval = time.Second
	// settleDelay gives a writer the time to finish, and to replace all files of a set.
	settleDelay = 50 * time.Millisecond
	// maxBytes bounds a file.
	maxBytes = 4 << 20
	// readTimeout bounds how long a pipe's writer is waited for.
	readTimeout = 10 * time.Second
)

// Read returns the content of a file of bounded size. A pipe may be in its place, such as
// shells give for the output of a command; one that nobody writes to is empty, as to wait
// for a writer would be to wait for good.
func Read(file string) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	_ = f.SetReadDeadline(time.Now().Add(readTimeout)) // files have none
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
	folders, err := watchFolders(files)
	if err != nil {
		log.Warn("files are followed by polling only", "files", files, "interval", pollInterval, "error", err)
	} else {
		defer folders.watcher.Close()
		events, failures = folders.watcher.Events, folders.watcher.Errors
	}
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	settle := time.NewTimer(0) // also catches what changed since they were read
	defer settle.Stop()
	pending, all := true, true
	for {
		var again <-chan time.Time
		if !all { // a folder is away
			again = time.After(awayInterval)
		}
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
			all = folders.renew() // before the look, which then misses nothing
			look(ctx)
		case <-again:
			all = folders.renew()
			look(ctx)
		case <-poll.C:
			all = folders.renew()
			look(ctx)
		}
	}
}

// folders are watched rather than the files, because files are replaced by renaming.
type folders struct {
	watcher *fsnotify.Watcher
	watched map[string]os.FileInfo // nil while it is away
}

func watchFolders(files []string) (*folders, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	f := &folders{watcher: w, watched: map[string]os.FileInfo{}}
	for _, file := range files {
		dir := filepath.Dir(file)
		if f.watched[dir] != nil {
			continue
		}
		if f.watched[dir], err = os.Stat(dir); err == nil {
			err = w.Add(dir)
		}
		if err != nil {
			w.Close()
			return nil, err
		}
	}
	return f, nil
}

// renew watches the folders that are there now: one that was replaced is another, of
// which nothing would be told. It is false while one is away.
func (f *folders) renew() bool {
	if f == nil {
		return true
	}
	all := true
	for dir, was := range f.watched {
		now, err := os.Stat(dir)
		if was != nil && (err != nil || !os.SameFile(was, now)) {
			_ = f.watcher.Remove(dir) // of what is deleted it knows already
		}
		if err == nil {
			err = f.watcher.Add(dir) // changes nothing where it is watched
		}
		if f.watched[dir] = now; err != nil {
			f.watched[dir], all = nil, false
		}
	}
	return all
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
