//go:build !linux

package harness

import (
	"errors"
	"testing"
	"time"
)

// StartDisk returns why no disk can be mounted here.
func StartDisk(testing.TB) (*Disk, error) {
	return nil, errors.New("disks that fail are mounted on Linux alone")
}

// Disk is a folder on a disk that becomes slow, or full, when a test says so.
type Disk struct{ Dir string }

// Slow does nothing here.
func (*Disk) Slow(time.Duration) {}

// Fill does nothing here.
func (*Disk) Fill(bool) {}
