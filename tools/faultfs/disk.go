package faultfs

import (
	"context"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/signal"
	"path"
	"slices"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// mountEnv names the folder on which a process is to be a disk.
const mountEnv = "HOLDFAST_FAULTFS"

func init() {
	if dir := os.Getenv(mountEnv); dir != "" {
		serve(dir)
		os.Exit(0)
	}
}

// serve is the disk's process. It ends when the test's does, however that ends, and unmounts: what a terminal or a timeout sends to both is not for this one.
func serve(dir string) {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	d := &Disk{}
	server, err := fs.Mount(dir, &folder{disk: d}, &fs.Options{MountOptions: fuse.MountOptions{DirectMount: true, FsName: "faultfs", Name: "faultfs",
		MaxWrite: 128 << 10, DisableXAttrs: true}})
	if err != nil {
		d.failed = err.Error()
	}
	r := rpc.NewServer()
	if err := r.Register(d); err != nil {
		panic(err)
	}
	r.ServeConn(pipe{os.Stdin, os.Stdout})
	if server != nil && server.Unmount() != nil {
		_ = syscall.Unmount(dir, syscall.MNT_DETACH) // somebody has a file open still
	}
}

// Disk is the process's state, and what net/rpc calls.
type Disk struct {
	failed string // to mount

	mu     sync.Mutex
	ops    []Op
	counts Counts
	files  int
	fault  *Fault
	there  int // files that there were when it began
	missed int // calls that the fault has let through
	hit    int // and those that it has not
}

func (d *Disk) Mounted(_ int, reply *string) error { *reply = d.failed; return nil }

func (d *Disk) Len(_ int, reply *int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	*reply = len(d.ops)
	return nil
}

func (d *Disk) Log(from int, reply *[]Op) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	*reply = slices.Clone(d.ops[from:])
	return nil
}

func (d *Disk) Counted(_ int, reply *Counts) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	*reply = d.counts
	return nil
}

func (d *Disk) Fail(f Fault, _ *int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault, d.there, d.missed, d.hit = &f, d.files, 0, 0
	return nil
}

func (d *Disk) Heal(_ int, reply *int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault, *reply = nil, d.hit
	return nil
}

// do carries a call out, or lets it fail. One at a time: the log has the order in which things happened.
func (d *Disk) do(op Op, act func()) syscall.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counts[op.Kind]++
	errno := d.fails(op)
	op.Failed = errno != 0
	if op.Kind.Changes() {
		d.ops = append(d.ops, op)
	}
	if errno == 0 && act != nil {
		act()
	}
	return errno
}

func (d *Disk) fails(op Op) syscall.Errno {
	if d.fault == nil || d.fault.Reading == op.Kind.Changes() ||
		d.fault.Of != "" && (path.Base(op.Path) != d.fault.Of || op.Kind != Read || op.File > d.there) {
		return 0
	}
	if d.missed < d.fault.After || d.hit > 0 && !d.fault.Stays {
		d.missed++
		return 0
	}
	d.hit++
	return d.fault.Errno
}

// folder is a folder of the disk; its names are kept by package fs.
type folder struct {
	fs.Inode
	disk *Disk
}

func (n *folder) at(name string) string { return path.Join(n.Path(nil), name) }

// Lookup finds a name that is there: package fs has it.
func (n *folder) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if errno := n.disk.do(Op{Kind: Stat, Path: n.at(name)}, nil); errno != 0 {
		return nil, errno
	}
	ch := n.GetChild(name)
	if ch == nil {
		return nil, syscall.ENOENT
	}
	var a fuse.AttrOut
	switch c := ch.Operations().(type) {
	case *folder:
		c.Getattr(ctx, nil, &a)
	case *file:
		c.attr(&a)
	}
	out.Attr = a.Attr
	return ch, 0
}

func (n *folder) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode = syscall.S_IFDIR | 0o755
	return 0
}

func (n *folder) Setattr(_ context.Context, _ fs.FileHandle, _ *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	out.Mode = syscall.S_IFDIR | 0o755
	return 0
}

func (n *folder) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	*out = fuse.StatfsOut{Blocks: 1 << 20, Bfree: 1 << 20, Bavail: 1 << 20, Bsize: 4096, Frsize: 4096, NameLen: 255, Files: 1 << 20, Ffree: 1 << 20}
	return 0
}

func (n *folder) Opendir(context.Context) syscall.Errno {
	return n.disk.do(Op{Kind: Open, Path: n.at("")}, nil)
}

func (n *folder) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (ch *fs.Inode, errno syscall.Errno) {
	errno = n.disk.do(Op{Kind: Mkdir, Path: n.at(name)}, func() {
		ch = n.NewPersistentInode(ctx, &folder{disk: n.disk}, fs.StableAttr{Mode: syscall.S_IFDIR})
		out.Mode = syscall.S_IFDIR | 0o755
	})
	return ch, errno
}

func (n *folder) Create(ctx context.Context, name string, _ uint32, mode uint32, out *fuse.EntryOut) (ch *fs.Inode, h fs.FileHandle, _ uint32, errno syscall.Errno) {
	f := &file{disk: n.disk, mode: mode & 0o7777}
	n.disk.mu.Lock()
	n.disk.files++
	f.number = n.disk.files
	n.disk.mu.Unlock()
	errno = n.disk.do(Op{Kind: Create, File: f.number, Path: n.at(name)}, func() {
		ch = n.NewPersistentInode(ctx, f, fs.StableAttr{Mode: syscall.S_IFREG})
		out.Mode = syscall.S_IFREG | f.mode
		h = handle{writes: true}
	})
	return ch, h, 0, errno
}

// number of the file at name; 0 is a folder.
func (n *folder) number(name string) int {
	if ch := n.GetChild(name); ch != nil {
		if f, ok := ch.Operations().(*file); ok {
			return f.number
		}
	}
	return 0
}

func (n *folder) Unlink(_ context.Context, name string) syscall.Errno {
	return n.disk.do(Op{Kind: Remove, File: n.number(name), Path: n.at(name)}, nil)
}

func (n *folder) Rmdir(_ context.Context, name string) syscall.Errno {
	if ch := n.GetChild(name); ch != nil && len(ch.Children()) > 0 {
		return syscall.ENOTEMPTY
	}
	return n.disk.do(Op{Kind: Remove, Path: n.at(name)}, nil)
}

func (n *folder) Rename(_ context.Context, name string, to fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	if flags != 0 {
		return syscall.EINVAL
	}
	return n.disk.do(Op{Kind: Rename, File: n.number(name), Path: n.at(name), To: to.(*folder).at(newName)}, nil)
}

func (n *folder) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	return n.disk.do(Op{Kind: SyncFolder, Path: n.at("")}, nil)
}

// file is a file of the disk.
type file struct {
	fs.Inode
	disk   *Disk
	number int
	mode   uint32
	data   []byte // guarded by disk.mu
}

// handle is an open file.
type handle struct{ writes bool }

func (f *file) path() string { return f.Path(nil) }

func (f *file) attr(out *fuse.AttrOut) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	out.Mode, out.Size, out.Nlink, out.Blocks = syscall.S_IFREG|f.mode, uint64(len(f.data)), 1, uint64(len(f.data)+511)/512
}

func (f *file) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	errno := f.disk.do(Op{Kind: Stat, Path: f.path()}, nil)
	f.attr(out)
	return errno
}

func (f *file) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) (errno syscall.Errno) {
	if size, ok := in.GetSize(); ok {
		errno = f.disk.do(Op{Kind: Truncate, File: f.number, Path: f.path(), Size: int64(size)}, func() { f.data = resized(f.data, int64(size)) })
	}
	if mode, ok := in.GetMode(); ok {
		f.mode = mode & 0o7777
	}
	f.attr(out)
	return errno
}

func (f *file) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if flags&syscall.O_ACCMODE == syscall.O_RDONLY {
		return handle{}, 0, f.disk.do(Op{Kind: Open, Path: f.path()}, nil)
	}
	return handle{writes: true}, 0, f.disk.do(Op{Kind: OpenWrite, File: f.number, Path: f.path()}, nil)
}

func (f *file) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (r fuse.ReadResult, errno syscall.Errno) {
	errno = f.disk.do(Op{Kind: Read, File: f.number, Path: f.path()}, func() {
		n := copy(dest, f.data[min(off, int64(len(f.data))):])
		r = fuse.ReadResultData(dest[:n])
	})
	return r, errno
}

func (f *file) Write(_ context.Context, _ fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	data = slices.Clone(data) // the buffer is used again
	errno := f.disk.do(Op{Kind: Write, File: f.number, Path: f.path(), Off: off, Data: data}, func() { f.data = written(f.data, data, off) })
	if errno != 0 {
		return 0, errno
	}
	return uint32(len(data)), 0
}

func (f *file) Allocate(_ context.Context, _ fs.FileHandle, _, _ uint64, mode uint32) syscall.Errno {
	if mode != keepSize {
		return syscall.EOPNOTSUPP
	}
	return f.disk.do(Op{Kind: Allocate, File: f.number, Path: f.path()}, nil)
}

// keepSize is FALLOC_FL_KEEP_SIZE.
const keepSize = 1

func (f *file) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	return f.disk.do(Op{Kind: Sync, File: f.number, Path: f.path()}, nil)
}

func (f *file) Flush(_ context.Context, h fs.FileHandle) syscall.Errno {
	if !h.(handle).writes {
		return 0
	}
	return f.disk.do(Op{Kind: Close, File: f.number, Path: f.path()}, nil)
}

var (
	_ io.ReadWriteCloser = pipe{}
	_ fmt.Stringer       = Op{}
	_                    = []interface {
		fs.NodeGetattrer
		fs.NodeSetattrer
		fs.NodeFsyncer
	}{&folder{}, &file{}}
	_ interface {
		fs.NodeLookuper
		fs.NodeStatfser
		fs.NodeOpendirer
		fs.NodeMkdirer
		fs.NodeCreater
		fs.NodeUnlinker
		fs.NodeRmdirer
		fs.NodeRenamer
	} = &folder{}
	_ interface {
		fs.NodeOpener
		fs.NodeReader
		fs.NodeWriter
		fs.NodeAllocater
		fs.NodeFlusher
	} = &file{}
)

// resized is data cut off or filled up with zeros.
func resized(data []byte, size int64) []byte {
	if n := size - int64(len(data)); n > 0 {
		return append(slices.Clip(data), make([]byte, n)...)
	}
	return data[:size:size]
}

// written is old with data at off.
func written(old, data []byte, off int64) []byte {
	if end := off + int64(len(data)); end > int64(len(old)) {
		old = resized(old, end)
	}
	copy(old[off:], data)
	return old
}
