package routing

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"time"
)

// ServeProfiles serves profiles on a Unix socket until ctx ends. The
// permissions of the file are the only access control.
func ServeProfiles(ctx context.Context, path string) error {
	listener, err := listenPrivate(path)
	if err != nil {
		return err
	}
	profileServer := &http.Server{Handler: Profiles(), ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = profileServer.Close() })
	defer stop()
	if err := profileServer.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// listenPrivate listens on a socket that only the current user may open. It replaces the socket of
// a killed process, and fails if the path is any other file.
func listenPrivate(path string) (net.Listener, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%s exists and is not a socket", path)
	default:
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		listener.Close()
		return nil, err
	}
	return listener, nil
}
