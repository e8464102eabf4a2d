//go:build !linux

package backends

import "errors"

// openWriteAheadFile is not supported: postponed lines are only in memory.
func openWriteAheadFile(string) (*writeAhead, []byte, error) { return nil, nil, errors.ErrUnsupported }

func (*writeAhead) mapFile() error { return errors.ErrUnsupported }
