package backends

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// besideLog opens the file of lines that wait beside a log, for this process alone, and
// returns those that another one left in it.
func besideLog(log string) (p *pending, had []byte, err error) {
	f, err := os.OpenFile(log+pendingName, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	fd := int(f.Fd())
	if err := syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, nil, fmt.Errorf("%s is another process's: %w", f.Name(), err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s is no file", f.Name())
	}
	text := make([]byte, min(info.Size(), pendingHead+maxPending))
	if _, err := f.ReadAt(text, 0); err != nil {
		return nil, nil, err
	}
	// Room is taken at once: memory of a file that finds none would end the process.
	if err := syscall.Fallocate(fd, 0, 0, pendingHead+maxPending); err != nil {
		return nil, nil, fmt.Errorf("take room for %s: %w", f.Name(), err)
	}
	mapped, err := syscall.Mmap(fd, 0, pendingHead+maxPending, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("map %s: %w", f.Name(), err)
	}
	p = &pending{text: mapped[pendingHead:], mapped: mapped}
	p.close = func() error {
		p.text, p.used, p.mapped = nil, 0, nil
		return errors.Join(syscall.Munmap(mapped), os.Remove(f.Name()), f.Close())
	}
	return p, left(text), nil
}

// begin makes the file this process's, once what another one left in it is written.
func (p *pending) begin() {
	p.tell()
	copy(p.mapped[8:], pendingMark)
}
