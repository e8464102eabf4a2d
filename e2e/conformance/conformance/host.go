package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
)

// Paths of Debian's packages.
const (
	cniPlugins = "/usr/lib/cni"
	busybox    = "/bin/busybox"
)

// errHost is the reason why no node can run on this machine.
var errHost = errors.New("no node can run on this machine")

// checkHost returns errHost with all that the machine lacks to run a node.
func checkHost() error {
	var lacks []error
	if os.Geteuid() != 0 {
		lacks = append(lacks, errors.New("not root"))
	}
	for _, program := range []string{"containerd", "ctr", "runc", "iptables", "conntrack", "ip", "mount", "umount"} {
		if _, err := exec.LookPath(program); err != nil {
			lacks = append(lacks, fmt.Errorf("no program %s", program))
		}
	}
	for _, file := range []string{filepath.Join(cniPlugins, "bridge"), filepath.Join(cniPlugins, "host-local"),
		filepath.Join(cniPlugins, "portmap"), busybox} {
		if _, err := os.Stat(file); err != nil {
			lacks = append(lacks, fmt.Errorf("no file %s (packages containernetworking-plugins, busybox-static)", file))
		}
	}
	if err := writableCgroups(); err != nil {
		lacks = append(lacks, fmt.Errorf("cgroups: %w", err))
	}
	if len(lacks) > 0 {
		return errors.Join(append([]error{errHost}, lacks...)...)
	}
	return nil
}

// writableCgroups creates and removes a cgroup, of version 2 or of the memory controller of
// version 1.
func writableCgroups() error {
	root := "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err != nil {
		root = filepath.Join(root, "memory")
	}
	dir, err := os.MkdirTemp(root, "conformance")
	if err != nil {
		return err
	}
	return os.Remove(dir)
}

// hostAddress returns the address of this machine that packets to other networks have.
func hostAddress() (string, error) {
	// Nothing is sent; the address belongs to a network for documentation.
	conn, err := net.Dial("udp", "198.51.100.1:9")
	if err != nil {
		return "", fmt.Errorf("address of this machine: %w", err)
	}
	defer conn.Close()
	host, _, err := net.SplitHostPort(conn.LocalAddr().String())
	return host, err
}
