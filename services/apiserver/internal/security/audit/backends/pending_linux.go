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
	f, err := own(log + pendingName)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file", f.Name())
	}
	if err == nil {
		had = make([]byte, min(info.Size(), pendingHead+maxPending))
		_, err = f.ReadAt(had, 0)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	p = &pending{text: make([]byte, maxPending), file: f}
	p.close = func() error {
		mapped := p.mapped
		p.text, p.used, p.mapped = nil, 0, nil
		if mapped != nil {
			err = syscall.Munmap(mapped)
		}
		// It is taken away before others may have it.
		return errors.Join(err, os.Remove(f.Name()), f.Close())
	}
	return p, left(had), nil
}

// own opens a file for this process alone, and makes it.
func own(name string) (*os.File, error) {
	for {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			return nil, errors.Join(fmt.Errorf("%s is another process's: %w", name, err), f.Close())
		}
		has, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		is, err := os.Lstat(name)
		switch {
		case err == nil && os.SameFile(has, is):
			return f, nil
		case err != nil && !errors.Is(err, os.ErrNotExist):
			return nil, errors.Join(err, f.Close())
		}
		// Who had it has taken it away meanwhile: nobody would find what is written to it.
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
}

// begin makes the file this process's, once what another one left in it is written.
func (p *pending) begin() (err error) {
	fd, name := int(p.file.Fd()), p.file.Name()
	// Room is taken at once: memory of a file that finds none is gone.
	if err := syscall.Fallocate(fd, 0, 0, pendingHead+maxPending); err != nil {
		return fmt.Errorf("take room for %s: %w", name, err)
	}
	p.mapped, err = syscall.Mmap(fd, 0, pendingHead+maxPending, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map %s: %w", name, err)
	}
	if !p.tell(0, 0) || !p.touch(func() { copy(p.mapped[8:], pendingMark) }) {
		return fmt.Errorf("%s has been cut off", name)
	}
	return nil
}
