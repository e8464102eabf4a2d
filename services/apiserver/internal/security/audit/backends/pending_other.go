//go:build !linux

package backends

import "errors"

// besideLog: lines wait in memory alone.
func besideLog(string) (*pending, []byte, error) { return nil, nil, errors.ErrUnsupported }

func (*pending) begin() error { return errors.ErrUnsupported }
