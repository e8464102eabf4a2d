package comparison

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Options are the flags of a command that compares the servers.
type Options struct {
	Workers                           int
	bin, reference, servers, accepted string
	keep                              bool
}

// Register registers the flags. accepted is the default file with the accepted differences.
func (o *Options) Register(accepted string) {
	flag.IntVar(&o.Workers, "workers", 8, "number of concurrent scenarios")
	flag.StringVar(&o.bin, "bin", "", "folder with the binaries apiserver and etcd")
	flag.StringVar(&o.reference, "kube-apiserver", "", "path of kube-apiserver; defaults to the one that make conformance-tools builds")
	flag.StringVar(&o.servers, "servers", "", "URLs of a running kube-apiserver and a running binnacle, separated by a comma; empty starts both")
	flag.StringVar(&o.accepted, "accepted", accepted, "file with the accepted differences")
	flag.BoolVar(&o.keep, "keep", false, "only start the servers and print their URLs; they run until the command is interrupted")
}

// Run starts the servers, calls run, and prints the differences that it found. It returns an error
// if one of them is not accepted.
func (o *Options) Run(ctx context.Context, run func(*Runner) error) error {
	list, err := readAccepted(o.accepted)
	if err != nil {
		return err
	}
	p := &Runner{Found: newGroups(list)}
	stop, err := o.connect(ctx, p)
	if err != nil {
		return err
	}
	defer stop()
	if o.keep {
		fmt.Printf("-servers=%s,%s\n", p.Reference.url, p.Product.url)
		<-ctx.Done()
		return nil
	}
	return errors.Join(run(p), p.report())
}

// connect connects a runner to the servers of the flags, or to servers that it starts.
func (o *Options) connect(ctx context.Context, p *Runner) (stop func(), err error) {
	if first, second, ok := strings.Cut(o.servers, ","); ok {
		p.Reference, p.Product = newServer("kube-apiserver", first), newServer("binnacle", second)
		return func() {}, nil
	}
	reference := o.reference
	if reference == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, err
		}
		reference = filepath.Join(cache, "binnacle-conformance", kubernetesVersion, "kube-apiserver")
	}
	dir, err := os.MkdirTemp("", "comparison")
	if err != nil {
		return nil, err
	}
	procs := &processes{dir: dir}
	fmt.Printf("start kube-apiserver and binnacle; logs are in %s\n", dir)
	p.Reference, p.Product, err = procs.startServers(ctx, programs{reference: reference, product: filepath.Join(o.bin, "apiserver"), etcd: filepath.Join(o.bin, "etcd")})
	if err != nil {
		procs.stop() // keeps the logs
		return nil, err
	}
	return func() {
		procs.stop()
		_ = os.RemoveAll(dir)
	}, nil
}

// kubernetesVersion is the version that make conformance-tools builds.
const kubernetesVersion = "v1.33.13"

// report prints the groups of differences that are not accepted. It returns an error if there are
// any.
func (p *Runner) report() error {
	unexplained, tolerated := 0, 0
	for _, g := range p.Found.sorted() {
		if g.accepted {
			tolerated++
			continue
		}
		unexplained++
		g.print(os.Stdout, unexplained)
	}
	fmt.Printf("\n%d requests to each server: %d groups of differences are not accepted, %d are\n", p.Sent(), unexplained, tolerated)
	if unexplained > 0 {
		return errors.New("the servers differ")
	}
	return nil
}
