//! The structures are laid out as libfabric's headers have them: a C compiler says where each field is.

use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;

use roci_fi::abi::atomic::*;
use roci_fi::abi::attributes::*;
use roci_fi::abi::memory::*;
use roci_fi::abi::operations::*;
use roci_fi::abi::queues::*;
use roci_fi::abi::*;

/// Lines of C that print what the fields' offsets and the structure's size are, and the same numbers of ours.
macro_rules! layouts {
    ($($structure:ident { $($field:ident),* $(,)? })*) => {{
        let (mut source, mut ours) = (String::new(), Vec::new());
        $(
            source += concat!("printf(\"%zu\\n\", sizeof(struct ", stringify!($structure), "));\n");
            ours.push((stringify!($structure).to_owned(), size_of::<$structure>()));
            $(
                let field = stringify!($field).trim_start_matches("r#");
                source += &format!("printf(\"%zu\\n\", offsetof(struct {}, {field}));\n", stringify!($structure));
                ours.push((format!("{}.{field}", stringify!($structure)), offset_of!($structure, $field)));
            )*
        )*
        (source, ours)
    }};
}

#[test]
fn structures_are_laid_out_as_in_c() {
    if !Path::new("/usr/include/rdma/fi_tagged.h").exists() {
        println!("SKIPPED: libfabric's headers are not installed (libfabric-dev)");
        return;
    }
    let (source, ours) = layouts! {
        fid { fclass, context, ops }
        fid_fabric { fid, ops, api_version }
        fid_domain { fid, ops, mr }
        fid_ep { fid, ops, cm, msg, rma, tagged, atomic, collective }
        fid_av { fid, ops }
        fid_cq { fid, ops }
        fid_cntr { fid, ops }
        fid_eq { fid, ops }
        fi_context { internal }
        fi_ioc { addr, count }
        fi_rma_ioc { addr, count, key }
        fi_msg_atomic { msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count, datatype, op, context, data }
        fi_atomic_attr { count, size }
        fi_provider { version, fi_version, context, name, getinfo, fabric, cleanup }
        fi_info {
            next, caps, mode, addr_format, src_addrlen, dest_addrlen, src_addr, dest_addr, handle, tx_attr, rx_attr, ep_attr,
            domain_attr, fabric_attr, nic,
        }
        fi_tx_attr { caps, op_flags, msg_order, comp_order, inject_size, size, iov_limit, rma_iov_limit, tclass }
        fi_rx_attr { caps, op_flags, msg_order, comp_order, total_buffered_recv, size, iov_limit }
        fi_ep_attr { r#type, protocol, max_msg_size, mem_tag_format, tx_ctx_cnt, rx_ctx_cnt, auth_key_size, auth_key }
        fi_domain_attr {
            domain, name, threading, control_progress, data_progress, resource_mgmt, av_type, mr_mode, mr_key_size,
            cq_data_size, max_ep_srx_ctx, cntr_cnt, caps, auth_key, max_err_data, mr_cnt, tclass,
        }
        fi_fabric_attr { fabric, name, prov_name, prov_version, api_version }
        fi_av_attr { r#type, rx_ctx_bits, count, name, map_addr, flags }
        fi_cq_attr { size, flags, format, wait_obj, signaling_vector, wait_cond, wait_set }
        fi_cntr_attr { events, wait_obj, wait_set, flags }
        fi_eq_attr { size, flags, wait_obj, wait_set }
        fi_cq_tagged_entry { op_context, flags, len, buf, data, tag }
        fi_cq_err_entry { op_context, flags, len, buf, data, tag, olen, err, prov_errno, err_data, err_data_size }
        fi_msg { msg_iov, desc, iov_count, addr, context, data }
        fi_msg_tagged { msg_iov, desc, iov_count, addr, tag, ignore, context, data }
        fid_mr { fid, mem_desc, key }
        fi_mr_attr { mr_iov, iov_count, access, offset, requested_key, context, auth_key_size, auth_key }
        fi_rma_iov { addr, len, key }
        fi_msg_rma { msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count, context, data }
        fi_ops { size, close, bind, control, ops_open, tostr, ops_set }
        fi_ops_fabric { domain, passive_ep, eq_open, wait_open, trywait, domain2 }
        fi_ops_domain { av_open, cq_open, endpoint, scalable_ep, cntr_open, srx_ctx, query_atomic, endpoint2 }
        fi_ops_mr { reg, regv, regattr }
        fi_ops_ep { cancel, getopt, setopt, tx_ctx, rx_ctx, rx_size_left, tx_size_left }
        fi_ops_cm { setname, getname, getpeer, connect, listen, accept, reject, shutdown, join }
        fi_ops_msg { recv, recvv, recvmsg, send, sendv, sendmsg, inject, senddata, injectdata }
        fi_ops_tagged { recv, recvv, recvmsg, send, sendv, sendmsg, inject, senddata, injectdata }
        fi_ops_rma { read, readv, readmsg, write, writev, writemsg, inject, writedata, injectdata }
        fi_ops_atomic { write, inject, readwrite, readwritemsg, compwrite, compwritemsg, writevalid, compwritevalid }
        fi_ops_collective { barrier, broadcast, alltoall, allreduce, allgather, reduce_scatter, reduce, scatter, gather, msg, barrier2 }
        fi_ops_av { insert, insertsvc, insertsym, remove, lookup, straddr, av_set }
        fi_ops_cq { read, readfrom, readerr, sread, sreadfrom, signal, strerror }
        fi_ops_cntr { read, readerr, add, set, wait, adderr, seterr }
        fi_ops_eq { read, readerr, write, sread, strerror }
    };
    let theirs = run(&source);
    for ((name, ours), theirs) in ours.iter().zip(&theirs) {
        // Later versions append to structures.
        let is_size = !name.contains('.');
        assert!(ours == theirs || is_size && ours <= theirs, "{name}: {ours} here, and {theirs} in C");
    }
    assert_eq!(ours.len(), theirs.len());
}

/// Compiles and runs lines of C, which print numbers.
fn run(lines: &str) -> Vec<usize> {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let headers =
        ["fabric", "fi_domain", "fi_endpoint", "fi_eq", "fi_cm", "fi_tagged", "fi_rma", "fi_atomic", "fi_collective"];
    let includes: String = headers.iter().map(|header| format!("#include <rdma/{header}.h>\n")).collect();
    let provider = "#include <rdma/providers/fi_prov.h>\n";
    let source = format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include <stdint.h>\n{includes}{provider}int main(void) {{\n{lines}}}\n"
    );
    let (file, program) = (place.join("layout.c"), place.join("layout"));
    std::fs::write(&file, source).expect("the place for tests' files can be written to");
    let built = Command::new("cc").arg(&file).arg("-o").arg(&program).output().expect("a C compiler is installed");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let output = Command::new(&program).output().expect("it runs");
    let numbers = String::from_utf8(output.stdout).expect("numbers");
    numbers.lines().map(|line| line.parse().expect("a number")).collect()
}
