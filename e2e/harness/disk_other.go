//go:build !linux

package harness

import (
	"errors"
	"testing"
	"time"
)

// StartDisk returns why no disk can be mounted here.
func StartDisk(testing.TB) (*Disk, error) {
	return nil, errors.New("fault-injecting disks need Linux")
}

// Disk is a folder on a disk that a test can make slow or full.
type Disk struct{ Dir string }

// Slow does nothing here.
func (*Disk) Slow(time.Duration) {}

// Fill does nothing here.
func (*Disk) Fill(bool) {}
