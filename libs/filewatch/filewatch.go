// Package filewatch follows a configuration file, so that a service applies changes without a
// restart. It reads the file again when its folder changes (by a rename, or through the symbolic
// links of mounted volumes) or is replaced, and at least once a minute.
//
// It handles only contents: their meaning, and the treatment of invalid ones, are up to the caller.
// Packages with reloadable configuration call it from one of their tasks.
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
	// pollInterval is the interval of unconditional reads.
	pollInterval = time.Minute
	// awayInterval is the interval of checks for a missing folder.
	awayInterval = time.Second
	// settleDelay allows a writer to finish, and to replace all files of a set.
	settleDelay = 50 * time.Millisecond
	// maxBytes bounds the size of a file.
	maxBytes = 4 << 20
	// readTimeout bounds the wait for the writer of a pipe.
	readTimeout = 10 * time.Second
)

// Read returns the content of a file of bounded size. The file may be a pipe, such as a shell
// creates for the output of a command. A pipe without a writer reads as empty, because waiting for
// a writer could take forever.
func Read(file string) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	_ = f.SetReadDeadline(time.Now().Add(readTimeout)) // no effect on regular files
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	if len(data) > maxBytes {
		return nil, fmt.Errorf("%s is larger than %d bytes", file, maxBytes)
	}
	return data, nil
}

// Follow calls changed, from one goroutine, with each new content of the file that differs from the
// previous one, initially known. If the file is unreadable, it calls changed with the error, once
// for each different error. It ends with ctx and returns its error. If the operating system cannot
// report changes, Follow only polls.
func Follow(ctx context.Context, log *slog.Logger, file string, known []byte, changed func(ctx context.Context, data []byte, err error)) error {
	return FollowUntilTaken(ctx, log, file, known, func(ctx context.Context, data []byte, err error) bool {
		changed(ctx, data, err)
		return true
	})
}

// FollowUntilTaken is Follow for callers that may be unable to apply a content yet. Until changed
// returns true, it is called again with the content whenever the file's folder changes and at least
// once a minute.
func FollowUntilTaken(ctx context.Context, log *slog.Logger, file string, known []byte, changed func(ctx context.Context, data []byte, err error) (taken bool)) error {
	r := reader{file: file, known: known, taken: true, changed: changed}
	return Look(ctx, log, []string{file}, r.read)
}

// Look calls look, from one goroutine, initially, whenever files may have changed, and at least
// once a minute. It ends with ctx and returns its error.
func Look(ctx context.Context, log *slog.Logger, files []string, look func(context.Context)) error {
	var events chan fsnotify.Event
	var failures chan error
	folders, err := watchFolders(files)
	if err != nil {
		log.Warn("file notifications unavailable; polling files", "files", files, "interval", pollInterval, "error", err)
	} else {
		defer folders.watcher.Close()
		events, failures = folders.watcher.Events, folders.watcher.Errors
	}
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	settle := time.NewTimer(0) // also detects changes since the files were read
	defer settle.Stop()
	pending, all := true, true
	for {
		var again <-chan time.Time
		if !all { // a folder is missing
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
			log.Warn("error from the file watcher", "files", files, "error", err)
		case <-settle.C:
			pending = false
			all = folders.renew() // before look, so that no change is missed
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

// folders watches folders rather than files, because files are replaced by renaming.
type folders struct {
	watcher *fsnotify.Watcher
	watched map[string]os.FileInfo // nil while the folder is missing
}

// watchFolders watches the folders of files, because files are usually replaced by renaming.
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

// renew watches the folders that exist now: a replaced folder is a new one, without events for the
// old watch. It returns false while a folder is missing.
func (f *folders) renew() bool {
	if f == nil {
		return true
	}
	all := true
	for dir, was := range f.watched {
		now, err := os.Stat(dir)
		if was != nil && (err != nil || !os.SameFile(was, now)) {
			_ = f.watcher.Remove(dir) // a deleted folder is already removed
		}
		if err == nil {
			err = f.watcher.Add(dir) // no effect on a watched folder
		}
		f.watched[dir] = now
		if err != nil {
			f.watched[dir], all = nil, false
		}
	}
	return all
}

// reader passes the content of a file on when it has changed.
type reader struct {
	file    string
	known   []byte
	taken   bool   // whether known was applied
	failed  string // the last error, so that it is reported once
	changed func(context.Context, []byte, error) bool
}

// read reads the file and reports a changed content or a new error.
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
