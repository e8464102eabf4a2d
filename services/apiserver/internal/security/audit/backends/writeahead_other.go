//go:build !linux

package backends

import "errors"

// openWriteAheadFile is not supported: postponed lines are only in memory.
func besideLog(string) (*pending, []byte, error) { return nil, nil, errors.ErrUnsupported }

func (*pending) begin() error { return errors.ErrUnsupported }
