package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ZooKeeperOptions are the options of StartZooKeeper.
type ZooKeeperOptions struct {
	// Nodes is how many servers the ensemble has; zero means three.
	Nodes int
	// Settings are appended to every server's configuration as name=value.
	Settings []string
}

// A ZooKeeper is an ensemble of ZooKeeper servers.
type ZooKeeper struct {
	// Nodes are the servers. Restart replaces them.
	Nodes []*Process

	java      string
	classpath string
}

// FindZooKeeper returns the path of java and the class path of ZooKeeper, or
// ErrNotInstalled. FENCEPROXY_ZOOKEEPER_CLASSPATH names another class path than
// that of Debian's package libzookeeper-java.
func FindZooKeeper() (java, classpath string, err error) {
	if java, err = lookup("", "java"); err != nil {
		return "", "", err
	}
	if classpath = os.Getenv("FENCEPROXY_ZOOKEEPER_CLASSPATH"); classpath != "" {
		return java, classpath, nil
	}
	const jars = "/usr/share/java"
	jar, err := lookup(jars, "zookeeper.jar") // its manifest names the jars that it needs
	if err != nil {
		return "", "", err
	}
	return java, jar + ":" + filepath.Join(jars, "slf4j-simple.jar"), nil
}

// StartZooKeeper starts an ensemble and waits until all its servers serve.
func StartZooKeeper(ctx context.Context, o ZooKeeperOptions) (*ZooKeeper, error) {
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	java, classpath, err := FindZooKeeper()
	if err != nil {
		return nil, fmt.Errorf("zookeeper: %w (apt-get install --no-install-recommends libzookeeper-java default-jre-headless; or make deps)", err)
	}
	for try := 0; ; try++ {
		z := &ZooKeeper{java: java, classpath: classpath}
		if err = z.configure(o); err == nil {
			if err = z.startAll(ctx); err == nil {
				return z, nil
			}
		}
		z.Stop()
		if try == 2 || ctx.Err() != nil {
			return nil, err
		}
	}
}

// configure makes the directories and the configuration of every server, on ports
// that are free now.
func (z *ZooKeeper) configure(o ZooKeeperOptions) error {
	var members strings.Builder
	clients, err := FreePorts(o.Nodes)
	if err != nil {
		return err
	}
	if o.Nodes > 1 {
		peers, err := FreePorts(2 * o.Nodes)
		if err != nil {
			return err
		}
		for i := range o.Nodes {
			fmt.Fprintf(&members, "server.%d=127.0.0.1:%d:%d\n", i+1, peers[2*i], peers[2*i+1])
		}
	}
	for i, port := range clients {
		dir, err := NewDir("zookeeper")
		if err != nil {
			return err
		}
		p := &Process{
			Name: "zookeeper " + strconv.Itoa(i+1), Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Dir: dir,
		}
		z.Nodes = append(z.Nodes, p)
		conf := fmt.Sprintf("dataDir=%s/data\nclientPortAddress=127.0.0.1\nclientPort=%d\n"+
			"tickTime=500\ninitLimit=20\nsyncLimit=6\nmaxSessionTimeout=60000\nmaxClientCnxns=0\n"+
			"forceSync=no\nadmin.enableServer=false\n4lw.commands.whitelist=*\n%s%s\n",
			p.Dir, port, members.String(), strings.Join(o.Settings, "\n"))
		if err := os.WriteFile(filepath.Join(p.Dir, "zoo.cfg"), []byte(conf), 0o644); err != nil {
			return err
		}
		if err := z.wipe(i); err != nil {
			return err
		}
	}
	return nil
}

// wipe gives a server that does not run an empty data directory.
func (z *ZooKeeper) wipe(i int) error {
	data := filepath.Join(z.Nodes[i].Dir, "data")
	if err := os.RemoveAll(data); err != nil {
		return err
	}
	if err := os.Mkdir(data, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(data, "myid"), []byte(strconv.Itoa(i+1)), 0o644); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return nil
	}
	return os.Chown(data, nobody, nobody)
}

// startAll starts every server that does not run, and waits until all of them serve:
// one alone never does.
func (z *ZooKeeper) startAll(ctx context.Context) error {
	var wg sync.WaitGroup
	errs := make([]error, len(z.Nodes))
	for i, p := range z.Nodes {
		wg.Go(func() {
			if p.cmd == nil || p.ended() {
				z.Nodes[i], errs[i] = z.run(ctx, p)
				return
			}
			for errs[i] = p.serves(ctx); errs[i] != nil && ctx.Err() == nil; errs[i] = p.serves(ctx) {
				select {
				case <-ctx.Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// run starts the server that p was, or is to be.
func (z *ZooKeeper) run(ctx context.Context, old *Process) (*Process, error) {
	p := &Process{Name: old.Name, Addr: old.Addr, Dir: old.Dir, log: new(tail), stop: syscall.SIGKILL}
	err := p.start(ctx, z.java, []string{
		"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.jmx.log4j.disable=true",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", z.classpath, "org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(p.Dir, "zoo.cfg"),
	}, p.serves)
	return p, err
}

// serves reports whether the server is part of an ensemble that has a leader, and
// notes its version.
func (p *Process) serves(ctx context.Context) error {
	said, err := fourLetters(ctx, p.Addr, "srvr")
	if err != nil {
		return err
	}
	if !strings.Contains(said, "\nMode: ") {
		return fmt.Errorf("not serving: %s", strings.TrimSpace(said))
	}
	version, _, _ := strings.Cut(strings.TrimPrefix(said, "Zookeeper version: "), "-")
	p.Version = "ZooKeeper " + version
	return nil
}

// ended reports whether the process has ended.
func (p *Process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Restart starts the servers that have ended, on their old ports and data, and waits
// until all of them serve.
func (z *ZooKeeper) Restart(ctx context.Context) error { return z.startAll(ctx) }

// Wipe ends every server, empties their data and starts them again.
func (z *ZooKeeper) Wipe(ctx context.Context) error {
	for i, p := range z.Nodes {
		p.Kill()
		if err := z.wipe(i); err != nil {
			return err
		}
	}
	return z.startAll(ctx)
}

// Leader returns the index of the server that leads the ensemble.
func (z *ZooKeeper) Leader(ctx context.Context) (int, error) {
	for i, p := range z.Nodes {
		said, err := fourLetters(ctx, p.Addr, "srvr")
		if err == nil && (strings.Contains(said, "\nMode: leader") || strings.Contains(said, "\nMode: standalone")) {
			return i, nil
		}
	}
	return 0, errors.New("zookeeper: no server leads")
}

// Addrs are the servers' host:port, with commas between.
func (z *ZooKeeper) Addrs() string {
	addrs := make([]string, len(z.Nodes))
	for i, p := range z.Nodes {
		addrs[i] = p.Addr
	}
	return strings.Join(addrs, ",")
}

// Log returns the last lines that the servers printed.
func (z *ZooKeeper) Log() string {
	var out strings.Builder
	for _, p := range z.Nodes {
		if p.log != nil {
			fmt.Fprintf(&out, "%s:\n%s\n", p.Name, p.Log())
		}
	}
	return out.String()
}

// Stop ends the servers and removes their directories.
func (z *ZooKeeper) Stop() {
	for _, p := range z.Nodes {
		if p.cmd != nil {
			p.Stop()
		}
		_ = os.RemoveAll(p.Dir)
	}
}

// fourLetters asks a server one of ZooKeeper's four-letter words.
func fourLetters(ctx context.Context, addr, word string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second) // a stopped one accepts and is silent
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	at, _ := ctx.Deadline()
	if err := c.SetDeadline(at); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, word); err != nil {
		return "", err
	}
	said, err := io.ReadAll(io.LimitReader(c, 64<<10))
	return string(said), err
}
