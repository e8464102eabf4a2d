// Package filewatch follows a configuration file, so that a service applies changes without a
// restart. It reads the file again when its folder changes (by a rename, or through the symbolic
// links of mounted volumes) or is replaced, and at least once a minute.
//
// Callers parse the content and decide what to do with invalid content. Packages with reloadable
// configuration call it from one of their tasks.
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
	// missingInterval is the interval of checks for a missing folder.
	missingInterval = time.Second
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

// Follow calls changed, from one goroutine, with each content of the file that differs from the
// previous one. content is what the caller has read before. If the file is unreadable, it calls
// changed with the error, once for each different error. It ends with ctx and returns its error. If
// the operating system cannot report changes, Follow only polls.
func Follow(ctx context.Context, log *slog.Logger, file string, content []byte,
	changed func(ctx context.Context, data []byte, err error)) error {
	return FollowUntilApplied(ctx, log, file, content, func(ctx context.Context, data []byte, err error) bool {
		changed(ctx, data, err)
		return true
	})
}

// FollowUntilApplied follows files like Follow, for callers that may be unable to apply some
// content. Until changed returns true, it is called again with the same content whenever the file's
// folder changes, and at least once a minute.
func FollowUntilApplied(ctx context.Context, log *slog.Logger, file string, known []byte,
	changed func(ctx context.Context, data []byte, err error) (applied bool)) error {
	r := changeReporter{file: file, content: known, applied: true, changed: changed}
	return Watch(ctx, log, []string{file}, r.reportChange)
}

// Watch calls changed from one goroutine: at the start, whenever files may have changed, and at
// least once a minute. It ends with ctx and returns its error.
func Watch(ctx context.Context, log *slog.Logger, files []string, changed func(context.Context)) error {
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
	pending, allExist := true, true
	for {
		var checkMissing <-chan time.Time
		if !allExist { // a folder is missing
			checkMissing = time.After(missingInterval)
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
			allExist = folders.watchExisting() // before changed, so that no change is missed
			changed(ctx)
		case <-checkMissing:
			allExist = folders.watchExisting()
			changed(ctx)
		case <-poll.C:
			allExist = folders.watchExisting()
			changed(ctx)
		}
	}
}

// folderWatcher watches folders rather than files, because files are replaced by renaming.
type folderWatcher struct {
	watcher        *fsnotify.Watcher
	watchedFolders map[string]os.FileInfo // nil while the folder is missing
}

// watchFolders watches the folders of files, because files are usually replaced by renaming.
func watchFolders(files []string) (*folderWatcher, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	f := &folderWatcher{watcher: watcher, watchedFolders: map[string]os.FileInfo{}}
	for _, file := range files {
		dir := filepath.Dir(file)
		if f.watchedFolders[dir] != nil {
			continue
		}
		if f.watchedFolders[dir], err = os.Stat(dir); err == nil {
			err = watcher.Add(dir)
		}
		if err != nil {
			watcher.Close()
			return nil, err
		}
	}
	return f, nil
}

// watchExisting watches the folders that exist now. A replaced folder needs a new watch, because
// the old one reports nothing. It returns false while a folder is missing.
func (f *folderWatcher) watchExisting() bool {
	if f == nil {
		return true
	}
	allExist := true
	for dir, previous := range f.watchedFolders {
		current, err := os.Stat(dir)
		if previous != nil && (err != nil || !os.SameFile(previous, current)) {
			_ = f.watcher.Remove(dir) // a deleted folder is already removed
		}
		if err == nil {
			err = f.watcher.Add(dir) // no effect on a watched folder
		}
		f.watchedFolders[dir] = current
		if err != nil {
			f.watchedFolders[dir], allExist = nil, false
		}
	}
	return allExist
}

// changeReporter reports the content of a file when it has changed.
type changeReporter struct {
	file      string
	content   []byte
	applied   bool   // changed returned true for content
	lastError string // the last error, so that it is reported once
	changed   func(context.Context, []byte, error) bool
}

// reportChange reads the file and reports a changed content or a new error.
func (r *changeReporter) reportChange(ctx context.Context) {
	data, err := Read(r.file)
	switch {
	case err != nil && err.Error() != r.lastError:
		r.lastError = err.Error()
		r.changed(ctx, nil, err)
	case err == nil:
		r.lastError = ""
		if !r.applied || !bytes.Equal(data, r.content) {
			r.content = data
			r.applied = r.changed(ctx, data, nil)
		}
	}
}
